"""Frequent Hindi words as social media spell them in Roman letters.

Written by hand for this library. The words are those that Hinglish tweets use most (SentiMix, SemEval-2020 task 9,
showed which): pronouns, auxiliaries, postpositions, particles, common verbs and nouns. Many of their spellings follow
no rule (``h`` है, ``k`` के, ``q`` क्यों), and many stand for several words; then the most common one is given.
"""

_WORDS = """
है hai h he hay hy hey hei
हैं hain hein hn hen haen
था tha thaa
थे the thay
थी thi thee
थीं thin theen
हूँ hu hun hoon hoo
हो ho
होगा hoga
होगी hogi
होंगे honge
होता hota
होती hoti
होते hote
होना hona
होने hone
हुआ hua huaa huwa
हुई hui huyi
हुए hue huye
की ki kee
को ko
का ka kaa
के ke k kay
से se sey sy
में me mein mei mn men
मैं main mai
ने ne ney
पर par pr per
पे pe pay
तक tak tk
तो to toh too tou
भी bhi bhe b bi bhee
ही hi hee
और aur or awr
या ya yaa
न na
ना naa
नहीं nahi nhi nahin nai nahee ni nh nahii
मत mat
जी ji jee g
हाँ haan han haa ha
यह yeh yah
ये ye
वह woh vah
वो wo vo
वाह wah waah
मेरा mera
मेरी meri
मेरे mere
मुझे mujhe muje mjhe
मुझको mujhko
मैंने maine mene mne
हम hum ham hm
हमें hame hamein humein hume
हमने hamne humne
हमारा hamara humara
हमारी hamari humari
हमारे hamare humare hmare
तू tu
तुम tum
तुझे tujhe tuje
तेरा tera
तेरी teri
तेरे tere
तूने tune
तुम्हें tumhe tumhein
तुम्हारा tumhara
तुम्हारी tumhari
तुम्हारे tumhare
तुमने tumne
तुमसे tumse
आप aap ap
आपका aapka apka
आपकी aapki apki
आपके aapke apke
आपको aapko apko
आपसे aapse apse
आपने aapne
अपना apna
अपनी apni
अपने apne
इस is iss
इसे ise
इसका iska
इसकी iski
इसके iske
इसको isko
इसमें isme ismein
इससे isse
इसने isne
इसलिए isliye islie
इसी isi
इन in inn
इनका inka
इनकी inki
इनके inke
इनको inko
इन्हें inhe inhein
उस us uss
उसे use usey
उसका uska
उसकी uski
उसके uske
उसको usko
उससे usse
उसने usne
उसमें usme usmein
उसी usi
उन un unn
उनका unka
उनकी unki
उनके unke
उनको unko
उन्हें unhe unhein
उन्होंने unhone unhonne
जो jo
जिस jis
जिसे jise
जिसने jisne
जिसका jiska
जिसकी jiski
जिसके jiske
जिसको jisko
जिन jin
कौन kaun kon koun
क्या kya kyaa
क्यों kyu kyon kyun kyo q kyoon kiu
क्योंकि kyuki kyunki kyonki
कैसे kaise kese
कैसा kaisa
कैसी kaisi
कब kab kb
कहा kaha
कहाँ kahan kahaan
कहीं kahi kahin
किस kis
किसी kisi
किसने kisne
किसका kiska
किसको kisko
कितना kitna
कितनी kitni
कितने kitne
कोई koi koyi
कुछ kuch kuchh kch kuc
जब jab jb
तब tab tb
अब ab
अभी abhi abi
कभी kabhi kbhi kabi kbi
सभी sabhi
तभी tabhi
यहाँ yaha yahan yahaan
वहाँ vaha wahan waha vahan
यही yahi yehi
वही wahi vahi wohi
जहाँ jaha jahan jahaan
सब sab sb
सबको sabko
सबसे sabse
सबका sabka
सबके sabke
एक ek ik aik
दो do
तीन teen
चार char chaar
पाँच paanch panch
दस das
सौ sau
हजार hazar hajar
लाख lakh
करोड़ crore karod karor
बहुत bahut bhut bht bohot bahot bohat bhot
ज्यादा jyada zyada jada
थोड़ा thoda thora
थोड़ी thodi
कम kam
पूरा pura poora
पूरी puri poori
पूरे pure poore
सारा sara saara
सारी sari saari
सारे sare saare
सिर्फ sirf
बस bas
लेकिन lekin lakin lkn
मगर magar
फिर phir fir
वैसे waise vaise
ऐसे aise
ऐसा aisa esa
ऐसी aisi
जैसे jaise jese
जैसा jaisa
जैसी jaisi
तरह tarah trh
तरफ taraf
साथ saath sath
बाद baad bad
पहले pehle pahle phle
पहला pehla pahla
आगे aage age
पीछे piche peeche pichhe
ऊपर upar uper
नीचे niche neeche
अंदर andar ander
बाहर bahar baahar
पास paas pas
दूर door dur
सामने samne saamne
बीच beech bich
कर kar kr
करना karna krna
करने karne krne
करता karta krta
करती karti krti
करते karte krte
करे kare kre
करें karen karein
करो karo kro
करके karke krke
करेगा karega
करेगी karegi
करेंगे karenge
करोगे karoge
किया kiya kia
किए kiye kie
कीजिए kijiye
रहा raha rha
रही rahi rhi
रहे rahe rhe
रहना rehna rahna
रहने rehne rahne
रहता rehta rahta
रहती rehti rahti
रहते rehte rahte
रहो raho
रहेगा rahega
गया gaya gya
गई gayi gyi gai
गए gaye gye gae
जा ja
जाना jana jaana
जाने jane jaane
जाता jata jaata
जाती jati jaati
जाते jate jaate
जाए jaye jaaye
जाओ jao
जाएगा jayega jaega
जाएगी jayegi
जाएंगे jayenge
आ aa
आया aaya aya
आई aayi aai ayi
आए aaye aye
आना aana
आने aane
आता aata ata
आती aati
आते aate
आओ aao
आएगा aayega ayega
दे de
देना dena
देने dene
दिया diya dia
दी di
दिए diye
देता deta
देती deti
देते dete
देगा dega
देंगे denge
ले le
लेना lena
लेने lene
लिया liya lia
ली li
लिए liye lie lye
लेता leta
लेते lete
लो lo
लेकर lekar
लेके leke
सकता sakta skta
सकती sakti
सकते sakte skte
चाहिए chahiye chahie chaiye
चाहता chahta
चाहते chahte
चाहे chahe
लगा laga
लगी lagi
लगे lage
लगता lagta
लगती lagti
लगते lagte
लग lag
बोल bol
बोला bola
बोले bole
बोलना bolna
बोलने bolne
बोलता bolta
बोलते bolte
बोलो bolo
कहना kehna kahna
कहते kehte kahte
कहता kehta kahta
कह keh kah
कहो kaho
देख dekh
देखा dekha
देखो dekho
देखना dekhna
देखने dekhne
देखते dekhte
सुन sun
सुना suna
सुनो suno
बता bata
बताओ batao
बताया bataya
बात baat bat
बातें baatein baate
बातों baaton
हर har hr
वाला wala vala waala
वाली wali vali
वाले wale vale waale
वालों walo walon
देश desh
भारत bharat
लोग log
लोगों logo logon
सरकार sarkar sarkaar
जनता janta
प्यार pyar pyaar
दिल dil
काम kaam
दिन din
रात raat
आज aaj aj
कल kal kl
साल saal sal
समय samay
वक्त waqt wakt
घर ghar
माँ maa ma
बाप baap bap
भाई bhai
भैया bhaiya
बहन behan behen bahan
बेटा beta
बेटी beti
बच्चा baccha bacha
बच्चे bacche bache bachche
दोस्त dost
यार yaar yar
नाम naam
गाँव gaon gaanv
पैसा paisa
पैसे paise
पानी pani paani
खाना khana
खाने khane
चल chal
चलो chalo
चला chala
चले chale
चलता chalta
मार maar
मारा mara maara
मारो maro
मिल mil
मिला mila
मिली mili
मिले mile
मिलता milta
मिलेगा milega
हमेशा hamesha hmesha
सच sach
झूठ jhooth jhoot jhuth
अच्छा accha acha achha
अच्छे acche achhe ache
अच्छी acchi achhi achi
बुरा bura
बड़ा bada bara
बड़ी badi
बड़े bade
बारे bare baare
छोटा chota chhota
छोटी choti
छोटे chote
नया naya nya
नई nayi
नए naye
खराब kharab
सही sahi shi
गलत galat glt
ठीक theek thik tik
जरूर jarur zaroor jaroor
शायद shayad sayad
बिल्कुल bilkul
मतलब matlab mtlb
सोच soch
समझ samajh smjh
याद yaad yad
पता pata pta
मालूम malum maloom
खुद khud
खुश khush
खुशी khushi
दुख dukh
शर्म sharam sharm
इज्जत izzat
हक haq hak
जान jaan
जीवन jeevan jivan
जिंदगी zindagi jindagi
दुनिया duniya
आदमी aadmi admi
औरत aurat
लड़का ladka larka
लड़के ladke larke
लड़की ladki larki
धन्यवाद dhanyawad dhanyavad
शुभकामनाएं subhkamnaye shubhkamnaye
बधाई badhai badhayi
मुबारक mubarak
जय jai jay
हिंद hind
राम ram
भगवान bhagwan
अल्लाह allah
किसान kisan
गरीब garib gareeb
"""

HINGLISH_WORDS: dict[str, str] = {
    roman: word for word, *spellings in map(str.split, _WORDS.strip().splitlines()) for roman in spellings
}
"""Roman spelling in lower case -> Devanagari word."""
